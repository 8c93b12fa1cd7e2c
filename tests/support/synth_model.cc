#include "support/synth_model.h"

#include "base/thread_pool.h"
#include "gguf/reader.h"
#include "support/files.h"

namespace carat::test {

std::shared_ptr<const model::Model> synth_model(const model::SynthOptions& options) {
  const TemporaryDirectory folder;
  ThreadPool pool;
  model::write_synth(model::plan_synth(options), folder.file("model.gguf"), pool);
  return model::Model::load(gguf::ModelFile::open(folder.file("model.gguf")));
}

}  // namespace carat::test
