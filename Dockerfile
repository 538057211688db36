# One image for web, worker and beat. The worker's sandbox needs bubblewrap; git is the store.
FROM python:3.13-slim-bookworm AS packages

COPY requirements.txt /tmp/
RUN python -m venv /opt/remit \
    && /opt/remit/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps \
       -r /tmp/requirements.txt

FROM python:3.13-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap ca-certificates git openssh-client \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 remit \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home remit \
    && install -d -o remit -g remit -m 700 /data

COPY --from=packages /opt/remit /opt/remit
COPY . /app
WORKDIR /app
ENV PATH=/opt/remit/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    REMIT_DATA_DIR=/data

# Collecting files needs settings, but no secret of a deployment: production refuses to invent any.
RUN python -m compileall -q /opt/remit /app \
    && REMIT_DATA_DIR=/tmp/build REMIT_PRODUCTION=true REMIT_ORIGIN=https://build.invalid \
       REMIT_SECRET_KEY=only-for-the-files-of-this-image-build \
       REMIT_CONNECTOR_KEYS=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= \
       python manage.py collectstatic --noinput --verbosity 0 \
    && rm -rf /tmp/build

USER 10001:10001
VOLUME /data
EXPOSE 8000
ENTRYPOINT ["python"]
CMD ["-m", "uvicorn", "config.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--lifespan", "off", \
     "--no-access-log", "--no-server-header", "--log-config", "config/uvicorn-logging.json"]
