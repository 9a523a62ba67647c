//! A seeded world for Orlop: the in-process API server, paused time, faults, a model driver and a user.
