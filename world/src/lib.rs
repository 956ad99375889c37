//! A closed network world for tests and the demo.
