"""mail: templates, rendering, and the bytes of a message."""
