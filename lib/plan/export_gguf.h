// Rebuilds the source GGUF of a plan, its metadata and tensors bit for bit.
//
// A source of one file gives one file. A sharded source gives its shards again, named after `path`:
// out.gguf -> out-00001-of-00003.gguf and so on (a merged file would need other metadata, and so
// would not be the source).
//
// Bytes between tensors are zero. Streams through work files that are renamed at the end; a failure
// leaves nothing behind. A plan that does not hold all rows of a tensor unchanged (lossy weights)
// is refused with the tensor's name.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::plan {

// Gives back the GGUF bytes of a blob in a layout other than Rows: fills `out`
// with source bytes [offset, offset + out.size()) of the blob's slices, joined. Called from
// several threads at once.
using UnpackFunction =
    std::function<Status(const BlobRecord& blob, std::span<const std::byte> packed, uint64_t offset,
                         std::span<std::byte> out)>;

// The files with only their headers: full size, but without weights (holes). For code that reads
// headers only.
Result<std::vector<std::string>> export_gguf_headers(const PlanFile& plan, const std::string& path);

// The paths of the files written. 0 threads: all cores.
Result<std::vector<std::string>> export_gguf(const PlanFile& plan, const std::string& path,
                                             const UnpackFunction& unpack = {}, int threads = 0);

}  // namespace ktx::plan
