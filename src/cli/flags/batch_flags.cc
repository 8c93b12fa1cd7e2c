#include "cli/flags/batch_flags.h"

namespace carat::cli {

// Together as many tokens of cache as serve's four requests of 32,768.
BatchFlags::BatchFlags() { answers.parallel = 32; }

void BatchFlags::add_to(CLI::App& command) {
  command.add_option("input", input, "file with one request on each line, as for OpenAI's batches")
      ->type_name("IN.jsonl")
      ->required();
  command
      .add_option("output", output, "file for the answers, in the same order; the same command goes on where it ended")
      ->type_name("OUT.jsonl")
      ->required();
  command.add_option("--errors", errors, "file for lines that fail; OUT.errors.jsonl where it is not given")
      ->type_name("FILE");
  command.add_option("--shard", shard, "which part of how many, such as 2/4: for several machines or GPUs")
      ->type_name("I/N");
  model.add_to(command);
  answers.add_to(command);
  size.add_to(command);
  device.add_to(command);
  sampling.add_to(command);
  drafts.add_to(command);
}

}  // namespace carat::cli
