// Uploads the weights of one GPU from the mapped plan.
//
// All blobs of the GPU's segments form one image, each at a multiple of 256 bytes. The image is
// cut into chunks; the threads of the pool copy chunks into pinned buffers and queue their
// upload, two buffers a thread, so that reading the file overlaps the copies over PCIe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/support/result.h"
#include "lib/support/thread_pool.h"

namespace ktx::runtime {

struct WeightImage {
  struct Blob {
    uint32_t blob;
    uint64_t offset;  // in the image
  };
  std::vector<Blob> blobs;  // rising offsets
  uint64_t bytes = 0;
};

// The future addresses of the weights of `device`.
WeightImage lay_out_weights(const plan::PlanView& plan, std::string_view device);

// Fills `memory`, which is image.bytes long. Returns when all of it is there.
Status upload_weights(const plan::PlanView& plan, const WeightImage& image, Gpu& gpu,
                      std::byte* memory, ThreadPool& pool);

}  // namespace ktx::runtime
