// Material reads the search box when a key goes up. An input method, a paste or a phone's keyboard may put
// words into it without one: Chinese was never read.
document.addEventListener("input", (event) => {
  if (event.target.matches("[data-md-component=search-query]")) {
    event.target.dispatchEvent(new Event("keyup"))
  }
})
