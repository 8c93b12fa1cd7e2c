#include "cli/flags/engine_flags.h"

#include <algorithm>
#include <utility>

namespace carat::cli {

engine::Engine EngineFlags::make(const runtime::LoadedModel& loaded, exec::ExecutorOptions executor,
                                 engine::EngineOptions engine, const runtime::LoadProgress& progress,
                                 const Logger& log) const {
  size.apply(loaded.model->config(), executor);
  device.apply(executor);
  drafts.apply(executor);
  // Drafts of one sequence beside a row of each of the others.
  executor.outputs += executor.sequences - 1;
  const uint32_t trained = loaded.model->config().context_length;
  if (executor.context > trained) {
    log->warn("-c {} is more than the {} tokens the model was trained for; answers get worse beyond them",
              executor.context, trained);
  }
  auto made = make_executor(device.chosen_device(), loaded.model, executor, progress);
  device.explain_unused(*made, log);
  engine.drafts = drafts.options(*made, log);
  return engine::Engine(std::move(made), loaded.vocab, std::move(engine));
}

}  // namespace carat::cli
