# kvreplay and all that its commands need:
#   docker build -t kvreplay .
#   docker run --rm -v "$PWD:/work" kvreplay run first
# The stage `tools` has what kvreplay is built, tested and plotted with; .devcontainer stops there.
FROM debian:12 AS tools
COPY tools/setup /tmp/setup
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git \
    && /tmp/setup && rm -rf /tmp/setup /var/lib/apt/lists/*

FROM tools AS build
COPY . /kvreplay
RUN cmake -S /kvreplay -B /build --preset release -DKVREPLAY_TESTS=OFF -DKVREPLAY_SOURCE_DIR= \
    && cmake --build /build && cmake --install /build --prefix /opt/kvreplay --strip

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends libhdf5-103-1 \
      python3-h5py python3-jsonschema python3-matplotlib python3-numpy python3-pandas python3-tqdm \
      python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/kvreplay /opt/kvreplay
ENV PATH=/opt/kvreplay/bin:$PATH PYTHONPATH=/opt/kvreplay/share/kvreplay/tools/python
WORKDIR /work
ENTRYPOINT ["kvreplay"]
