"""The small search that answers most questions, and is compiled first."""
