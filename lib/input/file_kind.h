// Recognises a file by its first bytes, never by its name.
//
//   file_kind(bytes)  -> FileKind::SafeTensors
//   describe(kind)    -> "a safetensors file"
//
// Safe for untrusted bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace ktx::input {

enum class FileKind {
  Gguf,
  GgufSwapped,  // a GGUF of a big-endian machine
  KtxPlan,
  SafeTensors,
  Html,
  GitLfsPointer,
  Json,
  Text,       // YAML rules among it
  GraphText,  // module-ir or step-ir (docs/ir.md), comment lines before it allowed
  OldGgml,
  Imatrix,  // llama.cpp's importance matrix from before it was a GGUF
  Zip,      // also PyTorch checkpoints
  Gzip,
  Elf,
  Zeros,
  Empty,
  Unknown,
};

// Looks at the first 4 KiB at most.
FileKind file_kind(std::span<const std::byte> bytes);
std::string_view describe(FileKind kind);

}  // namespace ktx::input
