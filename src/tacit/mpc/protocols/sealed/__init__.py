"""`sealed`: functions compared on shares, with a dealer; nobody sees anything."""
