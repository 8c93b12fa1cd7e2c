#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "exec/executor.h"
#include "exec/paging/paged_sequences.h"

namespace carat::test {

// What follows a text: a token that depends on every token before it, so that nobody gets it right by luck.
class TextChain {
 public:
  void append(int32_t token) { hash_ = mix(hash_, static_cast<uint64_t>(token) + 1); }
  int32_t next(uint32_t vocabulary) const {
    return static_cast<int32_t>(kPlain + mix(hash_, 7) % (vocabulary - kPlain));
  }
  uint64_t hash() const { return hash_; }
  static TextChain from(uint64_t hash) {
    TextChain chain;
    chain.hash_ = hash;
    return chain;
  }

 private:
  static constexpr uint64_t kPlain = 16;  // the first tokens of the vocabulary are special ones
  static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = a ^ (b * 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  uint64_t hash_ = 1;
};

// An executor with pages and without arithmetic. A cell of a page holds a hash of the text up to its position, and a
// row looks at the cells it would attend to: reading another text's keys is noticed at once. A pass takes so many
// seconds of a clock that nothing else moves.
class SimulatedExecutor : public exec::Executor {
 public:
  struct Load {
    uint32_t prompt_rows = 0, decode_rows = 0;
    uint64_t depth = 0;  // positions attended to
  };
  using Cost = std::function<double(const Load&)>;

  SimulatedExecutor(std::shared_ptr<const model::Model> model, const exec::ExecutorOptions& options,
                    model::PageCount pages, Cost cost, double* seconds)
      : model_(std::move(model)),
        options_(options),
        geometry_(model_->config(), options.context, options.chunk),
        table_(model_->config(), options_, geometry_, pages),
        cost_(std::move(cost)),
        seconds_(seconds) {
    for (const model::PageKind kind : model::kPageKinds) {
      cells(kind).resize(uint64_t{pages.of(kind)} * geometry_.positions());
    }
  }

  std::string_view name() const override { return "simulated"; }
  const model::Model& model() const override { return *model_; }
  const exec::ExecutorOptions& options() const override { return options_; }
  bool rows_are_independent() const override { return true; }

  void forward(std::span<const exec::Row> rows) override {
    table_.check(rows);
    for (const exec::PageCopy& copy : table_.begin(rows)) {
      const auto from = cells(copy.kind).begin() + uint64_t{copy.from} * geometry_.positions();
      std::copy_n(from, geometry_.positions(), cells(copy.kind).begin() + uint64_t{copy.to} * geometry_.positions());
    }
    next_.clear();
    Load load;
    for (size_t r = 0; r < rows.size(); ++r) {
      const exec::Row& row = rows[r];
      const bool is_prompt = !row.wants_logits || (r > 0 && rows[r - 1].sequence == row.sequence);
      ++(is_prompt ? load.prompt_rows : load.decode_rows);
      load.depth += row.position;
      TextChain chain = text_before(row);
      chain.append(row.token);
      for (const model::PageKind kind : model::kPageKinds) cell(kind, row.sequence, row.position) = chain.hash();
      if (row.wants_logits) next_.push_back(chain.next(model_->config().V));
    }
    table_.commit(rows);
    table_.check_counts();
    *seconds_ += cost_(load);
    ++passes_;
  }
  uint64_t passes() const { return passes_; }
  const exec::PagedSequences& table() const { return table_; }

  uint32_t outputs() const override { return static_cast<uint32_t>(next_.size()); }
  bool is_finite(uint32_t) const override { return true; }
  std::span<const float> logits(uint32_t output) override {
    logits_.assign(model_->config().V, 0.0f);
    logits_[static_cast<size_t>(next_.at(output))] = 20.0f;
    return logits_;
  }
  void best(uint32_t output, uint32_t k, std::vector<exec::Candidate>& out) override {
    exec::select_best(logits(output), k, out);
  }
  void logits_of(uint32_t output, std::span<const int32_t> tokens, std::vector<float>& out) override {
    const std::span<const float> all = logits(output);
    out.clear();
    for (const int32_t token : tokens) out.push_back(all[static_cast<size_t>(token)]);
  }
  double log_sum_exp(uint32_t output) override { return exec::log_sum_exp(logits(output)); }
  uint32_t length(uint32_t sequence) const override { return table_.length(sequence); }
  uint32_t truncate(uint32_t sequence, uint32_t n) override { return table_.truncate(sequence, n); }
  uint32_t resumable(uint32_t sequence, uint32_t n) const override { return table_.resumable(sequence, n); }
  exec::KeptPrefixes* prefixes() override { return &table_; }

 private:
  std::vector<uint64_t>& cells(model::PageKind kind) { return kind == model::PageKind::kGlobal ? global_ : sliding_; }
  uint64_t& cell(model::PageKind kind, uint32_t sequence, uint32_t position) {
    const uint64_t page = table_.page(kind, sequence, position);
    return cells(kind)[page * geometry_.positions() + position % geometry_.positions()];
  }
  // As the row finds it in the cells of both kinds, at the ends of what it sees and in the middle.
  TextChain text_before(const exec::Row& row) {
    if (row.position == 0) return TextChain();
    const uint32_t last = row.position - 1, first = geometry_.first_needed(row.position);
    for (const uint32_t position : {last, first + (last - first) / 2, first}) {
      if (cell(model::PageKind::kGlobal, row.sequence, position) !=
          cell(model::PageKind::kSliding, row.sequence, position)) {
        throw std::logic_error("a row finds another text in its window");
      }
    }
    return TextChain::from(cell(model::PageKind::kGlobal, row.sequence, last));
  }

  std::shared_ptr<const model::Model> model_;
  exec::ExecutorOptions options_;
  model::KvPages geometry_;
  exec::PagedSequences table_;
  Cost cost_;
  double* seconds_;
  uint64_t passes_ = 0;
  std::vector<uint64_t> global_, sliding_;
  std::vector<int32_t> next_;
  std::vector<float> logits_;
};

}  // namespace carat::test
