/* Asks VoTE, as its own robustness tool does: abstraction first, refinement where that is unsure. */

#include <time.h>
#include <vote.h>

typedef struct question {
  size_t label;
  clock_t deadline;
  int is_late;
} question_t;

static vote_outcome_t keeps_label(void *context, vote_mapping_t *mapping) {
  question_t *question = context;
  if (clock() > question->deadline) {
    question->is_late = 1;
    return VOTE_FAIL;
  }
  return vote_mapping_check_argmax(mapping, question->label);
}

/* 1: the label is kept everywhere in the box; 0: it is not; -1: out of time. */
int decide(const vote_ensemble_t *ensemble, const vote_bound_t *box, size_t label, double seconds) {
  question_t question = {label, clock() + (clock_t)(seconds * CLOCKS_PER_SEC), 0};
  int is_kept = vote_ensemble_absref(ensemble, box, keeps_label, &question);
  return question.is_late ? -1 : is_kept;
}
