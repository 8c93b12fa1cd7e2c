#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace carat::exec {

// One alternative way to compute something. The table of all of them is the registry: `carat kernels` prints it,
// --kernels slot=name,slot=name (or CARAT_KERNELS) picks from it, and a plan names its choices by these words.
struct KernelOption {
  std::string_view executor;   // "reference", "cpu" or "cuda"
  std::string_view slot;       // what is computed: "dot", "attention", ...
  std::string_view name;       // which way
  std::string_view needs;      // hardware or build it needs, in words; empty when none
  std::string_view exactness;  // what it rounds, in words
  std::string_view summary;
};

std::span<const KernelOption> kernel_registry();

// What a user asked for; slots not named are the plan's to choose.
class KernelChoices {
 public:
  // "slot=name,slot=name"; throws kBadArgument listing the known names when one is unknown.
  static KernelChoices parse(std::string_view text);
  std::optional<std::string_view> find(std::string_view slot) const;
  // Throws kBadArgument when a choice is one the executor does not offer: nothing a user asked for is ignored in
  // silence. Every executor calls this when it is made.
  void check_for(std::string_view executor) const;
  bool empty() const { return chosen_.empty(); }

 private:
  std::map<std::string, std::string, std::less<>> chosen_;
};

}  // namespace carat::exec
