"""What clients may ask for and a coordinator then carries out: cancel, pause, retry, signal, rerun."""
