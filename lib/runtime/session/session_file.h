// Saves a text with its keys and values to a file, so that it need not be computed again.
//
//   KTX_TRY(save_session("talk.ktxsession", engine, {.tokens = ids, .sampler = state}, sequence));
//   SavedSession saved = KTX_TRY(load_session("talk.ktxsession", engine, sequence));
//
// Little-endian:
//
//   SessionHeader   128 bytes: magic, version, the plan's hash, sizes
//   sampler         SamplerState, when the header says so
//   note            bytes of the caller (chat keeps its messages there)
//   tokens          int32 [tokens]; the first `computed` have keys and values
//   keys, values    per block of 64 tokens, slot and head: the rows that are in use
//   hash            XXH3-128 of all before
//
// A file belongs to one plan (its hash), precision and KV type. It can be continued with any
// thread count, batch, context or instruction set, with the same bits.
//
// Safe for untrusted files: every size is checked before use, and the hash before the sequence
// is changed. A file that does not fit is refused with the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/runtime/engine/engine.h"
#include "lib/runtime/sampling/sampler.h"
#include "lib/support/result.h"

namespace ktx::runtime {

struct SavedSession {
  std::vector<int32_t> tokens;
  int64_t computed = 0;  // of these, in the cache
  std::optional<SamplerState> sampler;
  std::string note;
};

// The file appears whole or not at all. `session.tokens` begins with the tokens of
// the sequence; `computed` is not looked at.
Status save_session(const std::string& path, Engine& engine, const SavedSession& session,
                    const Sequence& sequence);

// Fills `sequence`, whatever it held before; on failure it is empty.
Result<SavedSession> load_session(const std::string& path, Engine& engine, Sequence& sequence);

// The same in two parts, for those who must not wait for a disk on the engine's thread: only what
// has an engine is called there. An image is the file without its hash, in memory.
using SessionImage = std::vector<std::byte>;
Result<SessionImage> session_image(Engine& engine, const SavedSession& session,
                                   const Sequence& sequence);
Status write_image(const std::string& path, const SessionImage& image);
// The whole file, of at most so many bytes; pipes and devices are refused.
Result<SessionImage> read_image(const std::string& path, uint64_t most_bytes);
// `path` is for messages.
Result<SavedSession> load_image(const std::string& path, const SessionImage& file, Engine& engine,
                                Sequence& sequence);

}  // namespace ktx::runtime
