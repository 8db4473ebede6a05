"""What runs on the machine itself: inventory, tests, erase, image writing, rescue, joining."""
