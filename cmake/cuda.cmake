# GPU support: finds nvcc and sets KTX_HAS_CUDA.
#
#   -DKTX_CUDA=auto   on when nvcc of CUDA 12 or newer is found, off under a sanitizer
#   -DKTX_CUDA=on     an error when it is not
#   -DKTX_CUDA_ARCHITECTURES="80;90"   which generations get machine code; the newest of
#                     them also as PTX, for GPUs to come. Every one costs compile time.
#   -DKTX_CUDA_PTX=ON no machine code, only the newest one's PTX: half the compile time, for
#                     machines that have no GPU to run it on
#
# cudart is linked statically and opens the driver itself when it is first called, so
# that a program with GPU support starts where there is no driver.
set(KTX_CUDA auto CACHE STRING "GPU support: auto, on or off")
set(KTX_CUDA_ARCHITECTURES "75;80;86;89;90" CACHE STRING "GPU generations that get machine code")
option(KTX_CUDA_PTX "GPU kernels as PTX alone" OFF)
set(KTX_HAS_CUDA OFF)

string(TOLOWER "${KTX_CUDA}" asked)
if(asked STREQUAL "auto" AND KTX_SANITIZE)
  set(asked off)
endif()
if(asked STREQUAL "auto" OR asked)
  find_program(KTX_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  set(found "no nvcc")
  if(KTX_NVCC)
    execute_process(COMMAND ${KTX_NVCC} --version OUTPUT_VARIABLE version ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+)\\.([0-9]+)" found "${version}")
    if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12)
      set(KTX_HAS_CUDA ON)
    endif()
  endif()
  if(NOT KTX_HAS_CUDA AND NOT asked STREQUAL "auto")
    message(FATAL_ERROR "KTX_CUDA=on needs nvcc of CUDA 12 or newer on the PATH (${found}); "
                        "install it, or build for the CPU alone with -DKTX_CUDA=off")
  endif()
endif()

if(KTX_HAS_CUDA)
  # The oldest get machine code only, the newest PTX too.
  set(newest ${KTX_CUDA_ARCHITECTURES})
  list(SORT newest COMPARE NATURAL)
  list(POP_BACK newest last)
  set(CMAKE_CUDA_ARCHITECTURES)
  foreach(arch ${newest})
    list(APPEND CMAKE_CUDA_ARCHITECTURES ${arch}-real)
  endforeach()
  list(APPEND CMAKE_CUDA_ARCHITECTURES ${last})
  set(KTX_CUDA_HOPPER 90a-real)
  if(KTX_CUDA_PTX)
    set(CMAKE_CUDA_ARCHITECTURES ${last}-virtual)
    set(KTX_CUDA_HOPPER 90a-virtual)
  endif()
  set(CMAKE_CUDA_COMPILER ${KTX_NVCC})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know it for nvcc
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_STANDARD 20)
  find_package(CUDAToolkit 12 REQUIRED)
endif()
message(STATUS "GPU support: ${KTX_HAS_CUDA} ${KTX_NVCC}")
