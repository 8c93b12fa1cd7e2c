#pragma once

#include <cuda_runtime_api.h>

#include <utility>

namespace carat::cuda {

// A non-blocking stream. Move-only.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  cudaStream_t get() const { return stream_; }
  void synchronise() const;
  bool capturing() const;  // what is put on it is recorded instead of run

 private:
  cudaStream_t stream_ = nullptr;
};

// An event; with timing it measures device time between two points of a stream. Move-only.
class Event {
 public:
  explicit Event(bool timing = false);
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  cudaEvent_t get() const { return event_; }
  void record(cudaStream_t stream) const;
  void synchronise() const;
  // Milliseconds from `start` to this event; both must have happened.
  float since(const Event& start) const;

 private:
  cudaEvent_t event_ = nullptr;
};

// An instantiated graph. Move-only.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  // What launches() puts on the stream, recorded instead of run. When it throws, the stream can be used again.
  template <typename Launches>
  static Graph capture(cudaStream_t stream, const Launches& launches) {
    begin_capture(stream);
    try {
      launches();
    } catch (...) {
      abandon_capture(stream);
      throw;
    }
    return end_capture(stream);
  }
  bool ready() const { return graph_ != nullptr; }
  void launch(cudaStream_t stream) const;

 private:
  static void begin_capture(cudaStream_t stream);
  static Graph end_capture(cudaStream_t stream);
  static void abandon_capture(cudaStream_t stream) noexcept;

  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace carat::cuda
