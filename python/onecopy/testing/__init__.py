"""What tests of other projects use: budgets of memory, as a fixture and as a marker of pytest.

    def test_a_batch_fits(memory_budget):
        with memory_budget(anonymous="200 MiB"):
            make_batch()

    @pytest.mark.memory_budget(anonymous="200 MiB")
    def test_an_epoch_fits(): ...

pytest finds it by itself where onecopy is installed: ``-p no:onecopy`` leaves it out. Until a test uses it, nothing of
onecopy is loaded but this package and `onecopy` itself.
"""
