#include "engine/failure.h"

#include <exception>
#include <new>
#include <stdexcept>

namespace carat::engine {

Failure Failure::current() {
  try {
    throw;
  } catch (const Error& error) {
    return of(error);
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kOutOfMemory, "out of memory"};
  } catch (const std::exception& error) {
    return {std::nullopt, error.what()};
  } catch (...) {
    return {std::nullopt, "an exception of an unknown type"};
  }
}

void Failure::rethrow() const {
  if (code) throw Error(*code, text);
  throw std::runtime_error(text);
}

}  // namespace carat::engine
