// How much of a layer's experts comes to a GPU at a time (stream_memory.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ktx::plan {

enum class StreamSlots : uint8_t { Layer, Matrix, Eighth };
inline constexpr StreamSlots kStreamSlots[] = {StreamSlots::Layer, StreamSlots::Matrix,
                                               StreamSlots::Eighth};
inline constexpr int kStreamParts = 8;  // of a matrix, for Eighth

std::string_view name(StreamSlots slots);  // "a layer", "a matrix", "an eighth of a matrix"
std::string_view word(StreamSlots slots);  // "layer", "matrix", "eighth": in the facts of a plan
std::optional<StreamSlots> stream_slots(std::string_view word);

}  // namespace ktx::plan
