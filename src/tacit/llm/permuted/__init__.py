"""Private inference of a language model: one round trip per non-linear layer, offline masks.

Three parties of one `tacit.party.Session`, seated by `Seats`:

    owner   vault = open_vault(model); serve_owner(session, vault)
    dealer  serve_dealer(session, architecture)
    user    client = Client(session, architecture, network=Network(...))
            talk = Conversation(client)
            for token in talk.generate(ids, choose, limit=64, on_wait=...): ...
            talk.close(); client.close()

There is no guarantee for the weights against the user (`tacit.llm.claims`): it is for models
whose weights the user may have.

The owner's vault has the precision that fits its model, or another; it tells the others.
`choose(scores) -> place` is the user's sampling on scores in an order that it does not know. With
`counts=True` at all three, `adjust(scores, counts) -> scores` may change them first: counts say how
often the token of each score came before.
"""

from tacit.llm.claims import rows_to_steal
from tacit.llm.parties import Account, Allowance, Seats
from tacit.llm.permuted.batch import FORMS, Batch, Form
from tacit.llm.permuted.client import Ahead, Client, Memory
from tacit.llm.permuted.conversation import Adjust, Choose, Conversation, PermutedSpeaker
from tacit.llm.permuted.dealer import serve_dealer
from tacit.llm.permuted.fitting import fit_precision
from tacit.llm.permuted.forecast import (
    Network,
    OfflineCost,
    PassCost,
    choose_form,
    layer_messages,
    leaks,
    offline_cost,
    pass_cost,
)
from tacit.llm.permuted.owner import serve_owner
from tacit.llm.permuted.precision import Precision
from tacit.llm.permuted.setup import DealerMasks, MaskedWeights, OwnerVault, open_vault

__all__ = [
    "FORMS",
    "Account",
    "Adjust",
    "Ahead",
    "Allowance",
    "Batch",
    "Choose",
    "Client",
    "Conversation",
    "DealerMasks",
    "Form",
    "MaskedWeights",
    "Memory",
    "Network",
    "OfflineCost",
    "OwnerVault",
    "PassCost",
    "PermutedSpeaker",
    "Precision",
    "Seats",
    "choose_form",
    "fit_precision",
    "layer_messages",
    "leaks",
    "offline_cost",
    "open_vault",
    "pass_cost",
    "rows_to_steal",
    "serve_dealer",
    "serve_owner",
]
