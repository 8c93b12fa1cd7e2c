#include "exec/cuda/device/stream.h"

#include "exec/cuda/device/check.h"

namespace carat::cuda {

Stream::Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream"); }
Stream::~Stream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}
void Stream::synchronise() const { check(cudaStreamSynchronize(stream_), "waiting for the GPU"); }

bool Stream::capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream_, &status), "asking a stream for its state");
  return status != cudaStreamCaptureStatusNone;
}

Event::Event(bool timing) {
  check(cudaEventCreateWithFlags(&event_, timing ? cudaEventDefault : cudaEventDisableTiming), "creating an event");
}
Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}
void Event::record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "recording an event"); }
void Event::synchronise() const { check(cudaEventSynchronize(event_), "waiting for an event"); }
float Event::since(const Event& start) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "reading an event");
  return milliseconds;
}

Graph::~Graph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
}
void Graph::begin_capture(cudaStream_t stream) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "starting a graph capture");
}
Graph Graph::end_capture(cudaStream_t stream) {
  cudaGraph_t captured = nullptr;
  check(cudaStreamEndCapture(stream, &captured), "ending a graph capture");
  Graph graph;
  const cudaError_t status = cudaGraphInstantiate(&graph.graph_, captured, 0);
  cudaGraphDestroy(captured);
  check(status, "instantiating a graph");
  return graph;
}
void Graph::abandon_capture(cudaStream_t stream) noexcept {
  cudaGraph_t captured = nullptr;
  if (cudaStreamEndCapture(stream, &captured) == cudaSuccess && captured != nullptr) cudaGraphDestroy(captured);
  cudaGetLastError();
}
void Graph::launch(cudaStream_t stream) const { check(cudaGraphLaunch(graph_, stream), "launching a graph"); }

}  // namespace carat::cuda
