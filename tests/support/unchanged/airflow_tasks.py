"""An Airflow DAG with four tasks that run at the same time."""

from datetime import timedelta

from airflow.sdk import dag, task

# A task fails if it starts before the API server.
RETRIES = {"retries": 30, "retry_delay": timedelta(seconds=2)}


@dag(schedule="@once", default_args=RETRIES)
def answers():
    @task
    def answer(number):
        import model

        model.answer_together(model.load())

    answer.expand(number=list(range(4)))


answers()
