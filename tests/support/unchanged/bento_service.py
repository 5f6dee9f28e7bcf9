"""A service of BentoML with four workers."""

import bentoml
import model


@bentoml.service(workers=4)
class Server:
    def __init__(self) -> None:
        self.model = model.load()

    @bentoml.api
    def answer(self) -> dict:
        return model.answer(self.model)
