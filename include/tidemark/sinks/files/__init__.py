"""Files of a data lake, in folders by event time."""
