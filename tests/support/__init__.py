"""What tests share: models, parties, machines and observers, by room."""
