#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/flags/model_flags.h"
#include "cli/help/markup.h"
#include "cli/reports/depth_plot.h"
#include "cli/reports/speed_points.h"
#include "cli/terminal.h"

namespace carat::cli {

namespace {

struct PlotFlags {
  std::vector<std::string> sources;
  std::string title = "Speed of generation over depth";
  std::string output;
};

// "FILE", "ENGINE=FILE" or "ENGINE:MODEL=FILE". A file that exists is one, whatever its name looks like.
std::vector<SpeedPoint> read_source(const std::string& source) {
  std::error_code ignored;
  const size_t equals = std::filesystem::exists(source, ignored) ? source.npos : source.find('=');
  std::string engine = "carat", model, file = source;
  if (equals != source.npos) {
    engine = source.substr(0, equals);
    file = source.substr(equals + 1);
    if (const size_t colon = engine.find(':'); colon != engine.npos) {
      model = engine.substr(colon + 1);
      engine.resize(colon);
    }
    if (engine.empty() || file.empty()) {
      fail(ErrorCode::kBadArgument, "{}: write FILE, ENGINE=FILE or ENGINE:MODEL=FILE", source);
    }
  }
  return read_speed_points(read_text_file(file), file, engine, model);
}

void plot(const PlotFlags& flags) {
  std::vector<SpeedPoint> points;
  for (const std::string& source : flags.sources) {
    for (SpeedPoint& point : read_source(source)) points.push_back(std::move(point));
  }
  const std::string svg = depth_plot_svg(points, flags.title);
  if (flags.output.empty()) return write_stdout(svg);
  write_page(flags.output, svg);
  write_message(fmt::format("carat: wrote {}", flags.output));
}

}  // namespace

void add_plot_command(CLI::App& app) {
  auto flags = std::make_shared<PlotFlags>();
  CLI::App* command = app.add_subcommand("plot", "Draw measured speeds of generation over depth as an SVG picture");
  command
      ->add_option("SOURCE", flags->sources,
                   "results of `carat bench` or llama-bench, as JSON, lines of JSON or CSV; ENGINE=FILE or "
                   "ENGINE:MODEL=FILE names what they are of")
      ->type_name("FILE")
      ->required();
  command->add_option("--title", flags->title, "what stands above the plot")->capture_default_str();
  command->add_option("-o,--output", flags->output, "the picture (default: standard output)")->type_name("FILE.svg");
  command->callback([flags] { plot(*flags); });
}

}  // namespace carat::cli
