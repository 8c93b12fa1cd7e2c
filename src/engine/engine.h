#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cache/prefix_cache.h"
#include "engine/drafts/draft_governor.h"
#include "engine/drafts/draft_options.h"
#include "engine/failure.h"
#include "engine/pass_cost.h"
#include "engine/pass_figures.h"
#include "engine/sampling/logprobs.h"
#include "engine/scheduling/queue_order.h"
#include "engine/sequence.h"
#include "exec/executor.h"
#include "text/tokenizer/vocab.h"

namespace carat::engine {

// Follows one request. Called by the engine, in order, from within whatever function of it made the news. An exception
// that leaves a call ends this request as kFailed, and no other.
class SequenceObserver {
 public:
  virtual ~SequenceObserver() = default;
  // The request got its place in the executor: what of its prompt is reused is known, and nothing of it was run yet.
  virtual void on_start() {}
  virtual void on_token(text::TokenId) {}
  // Right before on_token() of a token whose request asked for them.
  virtual void on_logprobs(const ChoiceLogprobs&) {}
  virtual void on_prompt() {}  // a pass ran part of the prompt, and the next one will run more of it
  virtual void on_end() {}     // once, after everything else
};

struct EngineOptions {
  static double steady_seconds();

  DraftOptions drafts;
  // Seconds: so much time the engine means to leave between two tokens of a sequence while it reads prompts of others
  // in the same passes. 0: prompts take as many rows as the executor has.
  double itl_target = 0.025;
  std::function<double()> clock = steady_seconds;  // seconds since whenever

  // Throws kBadArgument naming the flag that is out of its range.
  void check() const;
};

struct EngineFigures {
  uint32_t running = 0;
  uint32_t waiting = 0;
  // Positions that are held, those of sequences that have ended included, and how many there is room for; with pages,
  // of global layers.
  uint64_t cached_tokens = 0;
  uint64_t cache_capacity = 0;
  // With pages: how many there are and how many are free, what can be gone on from, and how often a sequence had to
  // give back its place.
  model::PageCount pages, held_pages, free_pages;  // held: by sequences that run
  uint64_t global_page_bytes = 0, sliding_page_bytes = 0;
  PrefixCacheFigures prefixes;
  uint64_t preempted = 0;
};

// Runs requests on one executor, as many at a time as it has sequences; the others wait in order. Each step is one
// forward pass over a ragged batch: first one row for every sequence that is generating, so that a long prompt never
// stalls them, then prompt chunks as far as the executor's limits and the time a pass may take allow (pass_cost.h).
//
// Where the executor keeps prefixes (exec/kept_prefixes.h), what sequences leave behind can be gone on from at marked
// positions (cache/prefix_tree.h): where the request says so, every so many tokens, where two prompts part, and where
// the answer ends. A prompt whose beginning is just being read by another one waits for it. A request is admitted when
// there is room for its prompt and some of its answer; where memory runs out all the same, marks are given up, then the
// sequence that was admitted last gives back its place and gets it again later, with the same text.
//
// Elsewhere a finished sequence leaves its keys and values in its slot, and a new prompt takes the free slot for which
// least has to be run again (slot_choice.h). Requests share a prefix when they have the same salt, unless the later one
// wants nothing that is cached.
//
// With drafts (draft_options.h) a pass that takes no prompt may also run drafted tokens. The choices then come in
// rounds: each is what a pass of its own would have been, observers included, so that nobody can tell the difference
// but by the time.
//
// Where passes run in the background (Executor::start) and nothing is drafted, the next pass is started as soon as the
// tokens of the last one are chosen, before they are handed out: what observers do costs no time then. What they cancel
// is taken back, and what they submit takes part in the pass after that.
//
// What goes wrong ends as little as possible. What concerns one sequence (an observer that throws, logits that are not
// finite, a guide that fails) ends that sequence. A pass that fails ends the sequences that run; those that wait go on.
// An error of the device ends all, and the engine is lost: it says why, and takes nothing any more. Sequences keep the
// reason (Sequence::failure); nothing of this is thrown.
//
// Not thread-safe: one caller at a time (runner.h has a thread that is). Sole owner of the executor and its caches.
class Engine {
 public:
  // Throws kBadFile when the vocabulary and the model's embedding table differ in size, kBadArgument when one pass of
  // the executor cannot take a row with logits of every sequence, or an option is out of range. Drafts are as long as
  // the executor's rows and outputs of a pass allow, and no longer than asked for.
  Engine(std::unique_ptr<exec::Executor> executor, std::shared_ptr<const text::Vocab> vocab,
         EngineOptions options = {});

  // A request in two parts, of which the first may be done by any thread at any time: it throws kBadArgument when the
  // prompt is empty, longer than the context or has an unknown token, or when a sampling option is out of range. The
  // second throws kInterrupted while the engine drains, and kDevice with the reason when it is lost.
  std::shared_ptr<Sequence> prepare(Request request) const;
  void submit(std::shared_ptr<Sequence> sequence, std::shared_ptr<SequenceObserver> observer);
  // Both at once, for callers that only want tokens.
  std::shared_ptr<const Sequence> submit(Request request, std::function<void(text::TokenId)> on_token = {});

  // One forward pass and what follows from it. Returns whether there is anything left that could be run. When the
  // executor's cancelled flag is set, all ends as by end_all().
  bool step();
  // Gives free places in the executor to those that wait, as step() does before a pass: for callers that have something
  // to do between a request's start and its first pass. Nothing while a pass is running.
  void admit_waiting();
  void run() {
    while (step()) {
    }
  }

  // Three ways to end: one request, at once (kCancelled); all of them, each when it is done, and no new ones are
  // taken; all of them, at once (kInterrupted), and new ones may follow. Nothing happens to a sequence that has ended.
  void cancel(const Sequence& sequence);
  void drain() { is_draining_ = true; }
  void end_all();
  // Ends one request as kFailed, for a reason that only its caller knows.
  void fail(const Sequence& sequence, Failure failure);

  // A paused sequence keeps its slot and gets no rows.
  void pause(const Sequence& sequence, bool is_paused);

  bool is_draining() const { return is_draining_; }
  const std::optional<Failure>& lost() const { return lost_; }
  EngineFigures figures() const;
  const PassFigures& last_pass() const { return last_pass_; }
  double now() const { return options_.clock(); }

  exec::Executor& executor() { return *executor_; }
  const exec::Executor& executor() const { return *executor_; }
  const DraftOptions& drafts() const { return options_.drafts; }
  // For requests that are submitted from now on. What auto has measured is forgotten. Throws as the constructor does.
  void set_drafts(const DraftOptions& drafts);
  const text::Vocab& vocab() const { return *vocab_; }
  std::shared_ptr<const text::Vocab> shared_vocab() const { return vocab_; }

 private:
  struct Job {
    std::shared_ptr<Sequence> sequence;
    std::shared_ptr<SequenceObserver> observer;
    double submitted = 0.0;
  };
  struct Slot {
    Job job;                            // its sequence is null while the slot is free
    std::vector<text::TokenId> cached;  // the tokens whose keys and values the executor holds
    std::string salt;                   // of the request they are of
    uint64_t admitted = 0;              // numbers the requests in the order they got a slot, from 1 on
    std::vector<ResumePoint> marks;     // to be made when so much has been run; by position
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

  struct Call {  // of an observer, to be made
    Job job;
    std::optional<text::TokenId> token;      // none: part of the prompt was run
    std::optional<ChoiceLogprobs> logprobs;  // of the token, where they were asked for
  };

  // --- engine.cc: requests
  void check(const Request& request) const;
  void admit();
  void end_fair_share(const Job& job);
  static uint32_t shared_prefix(const Slot& slot, const Sequence& sequence);
  uint32_t slot_for(const Sequence& sequence) const;
  void take_slot(uint32_t slot, Job job);
  Job* find(const Sequence& sequence);
  void report_started();
  void release_ended();
  void report_ended();
  void settle_and_report();
  void end_running(Ending ending, const std::optional<Failure>& failure);
  void lose(Failure failure);
  void fail_pass(const std::exception_ptr& error);
  bool has_work() const;

  // --- engine_places.cc: places in the executor and the memory behind them
  bool is_running(const Slot& slot) const;
  void park_ended();
  void park(uint32_t slot);
  std::optional<size_t> next_waiting();
  bool is_being_read(const Sequence& sequence, uint32_t known);
  bool has_room_to_begin(const Sequence& sequence, const PrefixTree::Match& match) const;
  PrefixTree::Match find_prefix(const Sequence& sequence) const;
  void begin_sequence(uint32_t slot, Sequence& sequence);
  void plan_marks(Slot& slot, const Sequence& sequence, const PrefixTree::Match& match) const;
  void make_marks(uint32_t slot);
  bool reserve(uint32_t slot, uint32_t rows);
  std::optional<uint32_t> victim_for(uint32_t slot) const;
  void preempt(uint32_t slot);

  // --- engine_pass.cc: passes
  void plan_pass();
  uint32_t plan_drafts(std::span<const uint32_t> slots);
  void plan_prompts(std::vector<uint32_t> slots, bool beside_decode);
  void add_rows(uint32_t slot, uint32_t most, uint32_t longest_draft);
  bool start_pass();
  void finish_pass();
  bool run_pass();
  std::exception_ptr start_ahead();
  void settle();
  void choose_and_hand_out();
  bool choose_round(uint32_t round);
  void choose(Share& share, uint32_t round);
  void hand_out();
  void take_back_rejected();
  void learn(double seconds);
  void add_seconds(double seconds);

  std::unique_ptr<exec::Executor> executor_;
  std::shared_ptr<const text::Vocab> vocab_;
  EngineOptions options_;
  DraftGovernor governor_;
  PassCost cost_;
  std::vector<Slot> slots_;
  std::optional<PrefixCache> prefixes_;  // none where the executor keeps none
  std::deque<Job> waiting_;
  FairShare fair_share_;
  uint64_t preempted_ = 0;
  std::vector<Job> started_, ended_;  // whose observers have yet to be told
  uint64_t admitted_ = 0;
  bool is_draining_ = false;
  std::optional<Failure> lost_;
  bool is_in_step_ = false;

  bool is_running_ = false;  // a pass was started and not finished
  double pass_start_ = 0.0;
  bool was_waited_for_ = true;  // the pass ended after somebody began to wait for it
  PassFigures last_pass_;

  // The pass being built and its results; kept between steps.
  std::vector<exec::Row> rows_;
  std::vector<Share> shares_;
  PassLoad load_;
  double mask_seconds_ = 0.0;  // of guides
  std::vector<DraftGovernor::Offer> offers_;
  std::vector<Call> calls_;
};

}  // namespace carat::engine
