#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/reports/speed_points.h"

namespace carat::cli {

// The speed of generation over the depth as an SVG picture that needs nothing from elsewhere and follows the reader's
// choice of light or dark. Depths are on a logarithmic axis, with 0 at its left end; the speed begins at 0, so that a
// drop looks as large as it is. A model has a colour, an engine a kind of line, in the order they come in.
// Throws kBadArgument when there are no points, too many models or engines to tell apart, or two speeds for one place.
std::string depth_plot_svg(std::span<const SpeedPoint> points, std::string_view title);

}  // namespace carat::cli
