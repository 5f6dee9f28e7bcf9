"""Imported once by the server of multiprocessing, before it forks processes: they inherit the model."""

import model

loaded = model.load()
