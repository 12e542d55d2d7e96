# Airflow with Java, Spark and Tidemark: the image of docker-compose.yaml, and an example for your own image.
#
# `make test-compose` builds it on a stand-in for the base image: a Debian 12 with the same user, folders and entry point
# (tests/compose/stand_ins). On the real base image it has not been built yet: none could be fetched.
# tests/unit/test_containers.py compares versions, paths and variables with the code and the lock files.

FROM apache/airflow:3.3.2-python3.11 AS packages
USER root
# Spark has no Java of its own. /var/lib/tidemark is TIDEMARK_HOME, see below.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner airflow --group root /opt/tidemark /var/lib/tidemark
USER airflow
COPY requirements/tidemark.lock /tmp/tidemark.lock
RUN pip install --no-cache-dir --require-hashes --requirement /tmp/tidemark.lock

# The Kafka connector, checked against jars.lock. A separate stage, because it also fetches the broker's jars.
FROM packages AS jars
WORKDIR /tmp/build
COPY --chown=airflow:root jars jars
COPY --chown=airflow:root sandbox sandbox
# Of the package just what sandbox/errors.py imports: another change of it fetches nothing again.
COPY --chown=airflow:root include/tidemark/__init__.py include/tidemark/errors.py include/tidemark/version.py include/tidemark/
COPY --chown=airflow:root include/tidemark/spark/jars.txt include/tidemark/spark/
COPY --chown=airflow:root include/tidemark/providers/msk/jars.txt include/tidemark/providers/msk/
RUN PYTHONPATH=include python -c "from pathlib import Path; from sandbox.bootstrap.jars import ensure; ensure(Path('/tmp/fetched'))"

FROM packages
WORKDIR /opt/tidemark
COPY --from=jars --chown=airflow:root /tmp/fetched/jars/spark jars
COPY --chown=airflow:root dags dags
COPY --chown=airflow:root plugins plugins
COPY --chown=airflow:root spark_jobs spark_jobs
COPY --chown=airflow:root include include
# For Spark on Kubernetes, with this image: the entry points of a driver and of an executor.
COPY --chown=airflow:root examples/kubernetes/driver.yaml examples/kubernetes/executor.yaml ./
# TIDEMARK_HOME: Spark's logs, orders, the zip for executors, and lakes with a relative root.
ENV AIRFLOW__CORE__DAGS_FOLDER=/opt/tidemark/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/tidemark/plugins \
    PYTHONPATH=/opt/tidemark/include \
    TIDEMARK_HOME=/var/lib/tidemark \
    TIDEMARK_PIPELINES=/opt/tidemark/include/pipelines \
    TIDEMARK_SPARK_JARS=/opt/tidemark/jars
