#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/lookup_governor.h"
#include "engine/lookup_options.h"
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
// With prompt lookup (lookup_options.h) a pass that takes no prompt may also run drafted tokens. The choices then come
// in rounds: each is what a pass of its own would have been, callbacks included, so that nobody can tell the difference
// but by the time.
//
// Where passes run in the background (Executor::start) and nothing is drafted, the next pass is started as soon as the
// tokens of the last one are chosen, before they are handed out: what callbacks do costs no time then. What they cancel
// is taken back, and what they submit takes part in the pass after that.
//
// Not thread-safe: one caller at a time. Sole owner of the executor and its caches.
class Engine {
 public:
  // Called once per generated token, in order, from within step(). An exception thrown by it leaves through step(),
  // after which the engine can only be destroyed.
  using OnToken = std::function<void(text::TokenId)>;
  using Clock = std::function<double()>;  // seconds since whenever
  static double steady_seconds();

  // Throws kBadFile when the vocabulary and the model's embedding table differ in size, kBadArgument when one pass of
  // the executor cannot take a row with logits of every sequence, or a lookup option is out of range. Drafts are as
  // long as the executor's rows and outputs of a pass allow, and no longer than asked for.
  Engine(std::unique_ptr<exec::Executor> executor, std::shared_ptr<const text::Vocab> vocab, LookupOptions lookup = {},
         Clock clock = steady_seconds);

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
  const LookupOptions& lookup() const { return lookup_; }
  // For requests that are submitted from now on. What auto has measured is forgotten. Throws as the constructor does.
  void set_lookup(const LookupOptions& lookup);
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
    Job job;
    uint32_t rows;  // without the drafted ones
    bool prompt;
    uint32_t match_length = 0;  // of the draft; 0: there is none
    uint32_t drafted = 0;       // rows after these
    uint32_t first_output = 0;  // of the executor; the drafted rows' follow it
    bool open = false;          // there is an output left to choose from
    uint32_t choices = 0;       // made
    uint32_t as_drafted = 0;    // of them, from the first on: equal to the draft
  };

  void check(const Request& request) const;
  void admit();
  uint32_t slot_for(std::span<const text::TokenId> prompt) const;
  void take_slot(uint32_t slot, Job job);
  void release_ended();
  void plan_pass();
  uint32_t plan_drafts(std::span<const uint32_t> slots);
  void add_rows(uint32_t slot, uint32_t longest_draft);
  bool start_pass();
  void finish_pass();
  std::exception_ptr start_ahead();
  void settle();
  bool choose_round(uint32_t round);
  void choose(Share& share, uint32_t round);
  void take_back_rejected();
  void learn(double seconds);
  void add_seconds(double seconds);
  bool survives(const std::function<void()>& action);
  void end_running(Ending ending);
  void end_all_interrupted();
  bool busy() const;

  std::unique_ptr<exec::Executor> executor_;
  std::shared_ptr<const text::Vocab> vocab_;
  LookupOptions lookup_;
  LookupGovernor governor_;
  Clock clock_;
  std::vector<Slot> slots_;
  std::deque<Job> waiting_;
  uint64_t admitted_ = 0;
  uint64_t passes_ = 0;
  bool is_running_ = false;  // a pass was started and not finished
  double pass_start_ = 0.0;

  // The pass being built and its results; kept between steps.
  std::vector<exec::Row> rows_;
  std::vector<Share> shares_;
  std::vector<LookupGovernor::Offer> offers_;
  std::vector<std::pair<OnToken, text::TokenId>> calls_;
};

}  // namespace carat::engine
