#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/byte_size.h"
#include "cli/commands/commands.h"
#include "cli/flags/model_flags.h"
#include "cli/terminal.h"
#include "hub/inventory.h"
#include "runtime/model_loader.h"

namespace carat::cli {

namespace {

std::string inventory_text(const hub::Inventory& inventory) {
  std::vector<std::array<std::string, 5>> rows = {{"NAME", "SIZE", "FORMAT", "ARCHITECTURE", "WHERE"}};
  for (const hub::InventoryEntry& entry : inventory.models) {
    const auto or_dash = [](const std::string& text) { return text.empty() ? std::string("-") : text; };
    rows.push_back({entry.name, byte_size(entry.bytes), or_dash(entry.format), or_dash(entry.architecture),
                    entry.where + (entry.problem.empty() ? "" : "  BROKEN: " + entry.problem)});
  }
  std::array<size_t, 4> widths{};
  for (const auto& row : rows) {
    for (size_t column = 0; column < widths.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    text += fmt::format("{:<{}}  {:>{}}  {:<{}}  {:<{}}  {}\n", row[0], widths[0], row[1], widths[1], row[2], widths[2],
                        row[3], widths[3], row[4]);
  }
  if (inventory.models.empty()) text = "No Gemma 4 model was found. `carat pull hf:owner/repo` downloads one.\n";
  if (inventory.others > 0) {
    text += fmt::format("and {} GGUF file{} of other kinds\n", inventory.others, inventory.others == 1 ? "" : "s");
  }
  return text;
}

nlohmann::ordered_json inventory_json(const hub::Inventory& inventory) {
  nlohmann::ordered_json out = {{"models", nlohmann::ordered_json::array()}, {"others", inventory.others}};
  for (const hub::InventoryEntry& entry : inventory.models) {
    const auto or_null = [](const std::string& text) {
      return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
    };
    out["models"].push_back({{"name", entry.name},
                             {"path", or_null(entry.path)},
                             {"bytes", entry.bytes},
                             {"parts", entry.parts},
                             {"format", or_null(entry.format)},
                             {"architecture", or_null(entry.architecture)},
                             {"where", entry.where},
                             {"problem", or_null(entry.problem)}});
  }
  return out;
}

}  // namespace

void add_ls_command(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("ls", "List the Gemma 4 models in models/ and in the Hugging Face caches, as -m takes them");
  command->add_flag("--json", *json, "one JSON object");
  command->callback([json] {
    const hub::Inventory inventory = hub::take_inventory(runtime::lookup_places());
    write_stdout(*json ? inventory_json(inventory).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"
                       : inventory_text(inventory));
  });
}

}  // namespace carat::cli
