#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/sequence.h"
#include "exec/executor.h"
#include "text/vocab.h"

namespace carat::engine {

// Runs requests on one executor, as many at a time as it has sequences; the others wait in order. Each step is one
// forward pass over a ragged batch: first one row for every sequence that is generating, so that a long prompt never
// stalls them, then prompt chunks as far as the executor's limits allow.
//
// A finished sequence leaves its keys and values in its slot. A new prompt takes the free slot with which it shares the
// longest prefix and runs only what comes after it.
//
// Not thread-safe: one caller at a time. Sole owner of the executor and its caches.
class Engine {
 public:
  // Called once per generated token, in order, from within step(). An exception thrown by it leaves through step(),
  // after which the engine can only be destroyed.
  using OnToken = std::function<void(text::TokenId)>;

  // Throws kBadFile when the vocabulary and the model's embedding table differ in size, kBadArgument when one pass of
  // the executor cannot take a row with logits of every sequence.
  Engine(std::unique_ptr<exec::Executor> executor, std::shared_ptr<const text::Vocab> vocab);

  // Throws kBadArgument when the prompt is empty, longer than the context or has an unknown token, or when a sampling
  // option is out of range; other requests are not affected.
  std::shared_ptr<const Sequence> submit(Request request, OnToken on_token = {});

  // One forward pass and what follows from it. Returns whether anything is left to do. When the executor's cancelled
  // flag is set, all sequences end as kInterrupted. Any other error ends the running ones as kFailed and leaves through
  // here; waiting ones stay.
  bool step();
  void run() {
    while (step()) {
    }
  }

  // Ends one sequence as kInterrupted; the others go on. Does nothing when it has ended already.
  void cancel(const Sequence& sequence);

  exec::Executor& executor() { return *executor_; }
  const exec::Executor& executor() const { return *executor_; }
  const text::Vocab& vocab() const { return *vocab_; }
  std::shared_ptr<const text::Vocab> shared_vocab() const { return vocab_; }

 private:
  struct Job {
    std::shared_ptr<Sequence> sequence;
    OnToken on_token;
  };
  struct Slot {
    Job job;                            // its sequence is null while the slot is free
    std::vector<text::TokenId> cached;  // the tokens whose keys and values the executor holds
    uint64_t admitted = 0;              // numbers the requests in the order they got a slot
    uint64_t last_used = 0;             // number of the last pass with rows of this slot
  };
  struct Share {  // what one slot contributes to the pass being built
    uint32_t slot;
    uint32_t rows;
    bool prompt;
    bool output;
  };

  void check(const Request& request) const;
  void admit();
  uint32_t slot_for(std::span<const text::TokenId> prompt) const;
  void take_slot(uint32_t slot, Job job);
  void release_ended();
  void plan_pass();
  void add_rows(uint32_t slot);
  void run_pass();
  void sample_outputs();
  void end_running(Ending ending);
  void end_all_interrupted();
  bool busy() const;

  std::unique_ptr<exec::Executor> executor_;
  std::shared_ptr<const text::Vocab> vocab_;
  std::vector<Slot> slots_;
  std::deque<Job> waiting_;
  uint64_t admitted_ = 0;
  uint64_t passes_ = 0;

  // The pass being built and its results; kept between steps.
  std::vector<exec::Row> rows_;
  std::vector<Share> shares_;
  std::vector<std::pair<OnToken, text::TokenId>> calls_;
};

}  // namespace carat::engine
