# Airflow with Java, Spark and Tidemark: what docker-compose.yaml runs, and a start for an image of your own.
#
# Not built yet: there was no Docker engine where this was written, so only its text is tested
# (tests/unit/test_containers.py: versions, paths and variables agree with the code and the locks).

FROM apache/airflow:3.3.2-python3.11 AS packages
USER root
# Spark brings no Java. What /var/lib/tidemark is for stands at TIDEMARK_HOME below.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner airflow --group root /opt/tidemark /var/lib/tidemark
USER airflow
COPY requirements/tidemark.lock /tmp/tidemark.lock
RUN pip install --no-cache-dir --require-hashes --requirement /tmp/tidemark.lock

# The Kafka connector, checked against jars.lock; in a stage of its own, because the broker's jars come along.
FROM packages AS jars
WORKDIR /tmp/build
COPY --chown=airflow:root jars jars
COPY --chown=airflow:root sandbox sandbox
RUN python -c "from pathlib import Path; from sandbox.bootstrap.jars import ensure; ensure(Path('/tmp/fetched'))"

FROM packages
WORKDIR /opt/tidemark
COPY --from=jars --chown=airflow:root /tmp/fetched/jars/spark jars
COPY --chown=airflow:root dags dags
COPY --chown=airflow:root plugins plugins
COPY --chown=airflow:root spark_jobs spark_jobs
COPY --chown=airflow:root include include
# TIDEMARK_HOME: logs of Spark, orders, the zip for executors, and lakes whose root is relative.
ENV AIRFLOW__CORE__DAGS_FOLDER=/opt/tidemark/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/tidemark/plugins \
    PYTHONPATH=/opt/tidemark/include \
    TIDEMARK_HOME=/var/lib/tidemark \
    TIDEMARK_PIPELINES=/opt/tidemark/include/pipelines \
    TIDEMARK_SPARK_JARS=/opt/tidemark/jars
