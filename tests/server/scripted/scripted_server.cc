// `carat serve` as it is, but for its model: scripted_server --script FILE takes the same flags and answers what the
// script says. For tests of what clients do with thoughts, calls, failures and everything else that no small model can
// be made to write.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "cli/arguments.h"
#include "cli/exit_codes.h"
#include "cli/interrupts.h"
#include "cli/serving.h"
#include "runtime/model_loader.h"
#include "server/scripted/scripted_model.h"

namespace {

using namespace carat;

constexpr uint32_t kRowsInPass = 2048;

void serve_script(const cli::ServeFlags& flags, const std::string& path) {
  cli::serve(flags, [&](runtime::Device, std::shared_ptr<const model::Model> model, exec::ExecutorOptions options,
                        const runtime::LoadProgress&) {
    const auto vocab = runtime::load_vocab(model->file());
    if (options.chunk == 0) options.chunk = kRowsInPass;
    test::Script script = test::Script::parse(cli::read_text_file(path), text::Tokenizer(vocab));
    return std::make_unique<test::ScriptedModel>(std::move(model), vocab, options, std::move(script));
  });
}

}  // namespace

int main(int count, char** values) {
  cli::install_interrupt_handler();
  CLI::App app("carat serve with a model that says what a script tells it to", "scripted_server");
  std::string script;
  cli::ServeFlags flags;
  app.add_option("--script", script, "what is said when")->required()->type_name("FILE");
  flags.add_to(app);
  try {
    std::vector<std::string> arguments = cli::normalise_arguments(count, values);
    std::reverse(arguments.begin(), arguments.end());  // the order CLI11 wants
    app.parse(std::move(arguments));
    serve_script(flags, script);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const Error& error) {
    std::cerr << "scripted_server: " << error.what() << "\n";
    return cli::exit_code(error.code());
  } catch (const std::exception& error) {
    std::cerr << "scripted_server: " << error.what() << "\n";
    return cli::kInternalError;
  }
  return cli::kSuccess;
}
