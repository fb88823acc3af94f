"""What the console commands do; tools/*.py run the same."""
