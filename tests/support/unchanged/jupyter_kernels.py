"""Four Jupyter kernels that load the model, as a notebook server starts them; prints what each answers, as JSON."""

import json

from jupyter_client.manager import start_new_kernel

CELLS = "import json, model", "loaded = model.load(); model.answer(loaded)", "print(json.dumps(model.answer(loaded)))"


def run(client, code):
    """Run a cell; return what it prints."""
    printed = []
    reply = client.execute_interactive(code, output_hook=lambda message: printed.append(message["content"]))
    assert reply["content"]["status"] == "ok", printed
    return "".join(content.get("text", "") for content in printed)


kernels = [start_new_kernel(kernel_name="python3") for _ in range(4)]
*first, last = CELLS
for code in first:
    for _, client in kernels:
        run(client, code)
print(json.dumps([json.loads(run(client, last)) for _, client in kernels]))
for manager, client in kernels:
    client.stop_channels()
    manager.shutdown_kernel()
