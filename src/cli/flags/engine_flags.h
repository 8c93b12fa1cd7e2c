#pragma once

#include "base/log.h"
#include "cli/flags/draft_flags.h"
#include "cli/flags/model_flags.h"
#include "engine/engine.h"
#include "runtime/executor_factory.h"
#include "runtime/model_loader.h"

namespace carat::cli {

// Where and how a model runs, as the flags of chat, run and serve say it together.
struct EngineFlags {
  const SizeFlags& size;
  const DeviceFlags& device;
  const DraftFlags& drafts;
  runtime::ExecutorMaker make_executor = runtime::make_executor;

  // `executor` and `engine` hold what the flags do not say. Warns about flags that have no effect. Throws on flags that
  // cannot be, and where the model does not fit.
  engine::Engine make(const runtime::LoadedModel& loaded, exec::ExecutorOptions executor, engine::EngineOptions engine,
                      const runtime::LoadProgress& progress, const Logger& log) const;
};

}  // namespace carat::cli
