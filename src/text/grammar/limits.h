#pragma once

#include <cstddef>
#include <cstdint>

namespace carat::text::grammar {

// What one grammar or schema, which comes from nobody in particular, may cost. Beyond a limit there is an Error.

// Source texts.
inline constexpr size_t kMaxSourceBytes = size_t{1} << 20;  // of a GBNF grammar or a JSON schema
inline constexpr uint32_t kMaxNesting = 200;                // of groups, of parts of a pattern, of a schema's JSON
inline constexpr size_t kMaxPatternBytes = 4096;
inline constexpr size_t kMaxTextStates = 4000;      // of what a schema says about one string
inline constexpr size_t kMaxTextWork = 20'000'000;  // steps on the way there

// Grammars and their automata. Repetitions are counted at run time, so a large bound costs no memory.
inline constexpr size_t kMaxExpressions = 1'000'000;
inline constexpr size_t kMaxNodes = 4'000'000;
inline constexpr uint32_t kMaxRepetition = 1'000'000;

// Schemas.
inline constexpr size_t kMaxSchemaRules = 20'000;       // distinct combinations of subschemas
inline constexpr size_t kMaxSchemaSteps = 500'000;      // schemas looked at on the way, again and again
inline constexpr size_t kMaxAlternatives = 256;         // of anyOf, oneOf and types multiplied out at one place
inline constexpr size_t kMaxProperties = 1000;          // of one object
inline constexpr size_t kMaxFreeOrder = 64;             // members of an object that may come in any order
inline constexpr size_t kMaxNameBytes = 1000;           // of a property
inline constexpr uint32_t kMaxMultipleOf = 200;         // where the multiples are not written out
inline constexpr size_t kMaxEnumeratedValues = 20'000;  // of an enum, or multiples written out
inline constexpr int kMaxIntegerDigits = 15;            // what every JSON reader keeps exactly

// Matching. A text may be read in several ways at once; that many are followed, and a mask may take that much work
// (a second or so).
inline constexpr size_t kMaxReadings = 4096;
inline constexpr uint64_t kMaxWork = 40'000'000;
// Up to this many readings a mask is put together from the masks of their positions, beyond it is computed as a whole.
inline constexpr size_t kMaxReadingsForLocalMasks = 16;
// Memory of one matcher: emptied beyond the first between two steps, an Error beyond the second within one.
inline constexpr size_t kMatcherCacheBytes = size_t{32} << 20;
inline constexpr size_t kMaxMatcherBytes = size_t{256} << 20;
inline constexpr size_t kMaskCacheBytes = size_t{32} << 20;       // finished masks of one matcher
inline constexpr size_t kLocalMaskCacheBytes = size_t{64} << 20;  // of one compiled grammar, shared by its matchers

}  // namespace carat::text::grammar
