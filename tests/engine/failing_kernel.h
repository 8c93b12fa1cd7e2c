#pragma once

namespace carat::test {

// Runs a kernel that stops itself with an error. From then on every call to the GPU fails in this process.
void fail_on_the_gpu();

}  // namespace carat::test
