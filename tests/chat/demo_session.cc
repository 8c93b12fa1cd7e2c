#include "chat/demo_session.h"

#include "gguf/reader.h"
#include "model/model.h"
#include "runtime/executor_factory.h"
#include "support/files.h"

namespace carat::test {

namespace {

struct DemoModel {
  std::shared_ptr<const model::Model> model = model::Model::load(gguf::ModelFile::open(model_path("demo-e-q8_0.gguf")));
  std::shared_ptr<const text::Vocab> vocab = text::Vocab::from_metadata(model->file().metadata());
};

const DemoModel& demo() {
  static const DemoModel loaded;
  return loaded;
}

}  // namespace

std::shared_ptr<const text::Vocab> demo_vocab() { return demo().vocab; }

chat::ChatSession demo_session(uint32_t context, chat::ChatSession::Options options) {
  return demo_session(context, std::move(options), text::ChatTemplate::from_vocab(*demo().vocab, false));
}

chat::ChatSession demo_session(uint32_t context, chat::ChatSession::Options options, text::ChatTemplate chat_template) {
  exec::ExecutorOptions executor;
  executor.context = context;
  executor.outputs = 1;
  executor.chunk = 128;
  options.turn.sampling.temperature = 0.0f;
  auto runner = std::make_shared<engine::Runner>(
      engine::Engine(runtime::make_executor(runtime::Device::kCpu, demo().model, executor, {}), demo().vocab));
  return chat::ChatSession(std::move(runner), std::move(chat_template), std::move(options));
}

}  // namespace carat::test
