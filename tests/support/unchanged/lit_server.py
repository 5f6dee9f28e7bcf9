"""A LitServe server with four workers: python lit_server.py PORT."""

import sys

import litserve
import model


class Api(litserve.LitAPI):
    def setup(self, _):
        self.model = model.load()

    def decode_request(self, request):
        return request

    def predict(self, _):
        return model.answer(self.model)

    def encode_response(self, output):
        return output


if __name__ == "__main__":
    litserve.LitServer(Api(), accelerator="cpu", workers_per_device=4).run(
        host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False
    )
