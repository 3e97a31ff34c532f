# The few rules that every folder's CMakeLists.txt uses.
# A folder that was configured for shared libraries has their paths in its cache, and the other way round.
if(DEFINED KTX_FOUND_STATIC AND NOT KTX_FOUND_STATIC STREQUAL KTX_STATIC)
  get_cmake_property(cached CACHE_VARIABLES)
  foreach(name ${cached})
    if(name MATCHES "^(pkgcfg_lib_|__pkg_config_checked_|KTX_YAML$|OPENSSL_.*LIBRARY|(PNG|JPEG|ZLIB|CURL)_.*LIBRARY)")
      unset(${name} CACHE)
    endif()
  endforeach()
endif()
set(KTX_FOUND_STATIC ${KTX_STATIC} CACHE INTERNAL "")
if(KTX_STATIC)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(OPENSSL_USE_STATIC_LIBS ON)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()
# Which kernels are built (kernels/built_for.h).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(KTX_ARM ON)
endif()
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
if(KTX_STATIC)  # its own target is the shared library
  find_library(KTX_YAML yaml-cpp REQUIRED)
  add_library(ktx_yaml STATIC IMPORTED)
  set_target_properties(ktx_yaml PROPERTIES IMPORTED_LOCATION ${KTX_YAML})
else()
  add_library(ktx_yaml INTERFACE IMPORTED)
  target_link_libraries(ktx_yaml INTERFACE yaml-cpp)
endif()
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
pkg_check_modules(SECCOMP IMPORTED_TARGET libseccomp)  # --sandbox; without it that option fails
pkg_check_modules(URING IMPORTED_TARGET liburing)  # experts from disk; without it threads read them
find_package(PNG)  # images; without these three such files are refused
find_package(JPEG)
pkg_check_modules(WEBP IMPORTED_TARGET libwebp)
if(KTX_STATIC AND WEBP_FOUND)  # from 1.3 on libwebp.a needs it
  find_library(KTX_SHARPYUV sharpyuv)
  if(KTX_SHARPYUV)
    target_link_libraries(PkgConfig::WEBP INTERFACE ${KTX_SHARPYUV})
  endif()
endif()
if(KTX_STATIC)  # from 3.5 on distributions build it with libraries that its package file alone names
  pkg_check_modules(LIBCRYPTO REQUIRED libcrypto)
  foreach(name ${LIBCRYPTO_STATIC_LIBRARIES})
    find_library(KTX_LIBCRYPTO_${name} ${name})
    if(KTX_LIBCRYPTO_${name})
      target_link_libraries(OpenSSL::Crypto INTERFACE ${KTX_LIBCRYPTO_${name}})
    endif()
  endforeach()
endif()

# One interface target carries warnings, include root and sanitizers.
add_library(ktx_options INTERFACE)
target_include_directories(ktx_options INTERFACE ${CMAKE_SOURCE_DIR})
# -ffp-contract=off: a sum must not change with the compiler's mood; kernels ask
# for FMA by intrinsic where they want it.
set(host_language $<COMPILE_LANGUAGE:C,CXX>)
target_compile_options(ktx_options INTERFACE $<${host_language}:-Wall -Wextra -ffp-contract=off>)
# g++ 12 sees overlapping copies in plain std::string code (GCC bug 105651).
target_compile_options(ktx_options INTERFACE
                       $<$<AND:${host_language},$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>)
# nvcc passes its own code to the host compiler; -Wpedantic and the like do not fit it.
target_compile_options(ktx_options INTERFACE
                       $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-restrict>)
target_compile_definitions(ktx_options INTERFACE KTX_VERSION="${PROJECT_VERSION}")
if(KTX_WERROR)
  target_compile_options(ktx_options INTERFACE $<${host_language}:-Werror>
                         "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>")
endif()
if(KTX_SANITIZE)
  # Tests are compiled without (tests/CMakeLists.txt); what they test has the checks.
  set(not_of_tests $<NOT:$<BOOL:$<TARGET_PROPERTY:KTX_TEST>>>)
  # But for threads: where a test waits by a std::future, its own code has the atomics that must be seen.
  if(KTX_SANITIZE STREQUAL "thread")
    set(not_of_tests 1)
  endif()
  target_compile_options(ktx_options INTERFACE "$<${not_of_tests}:-fsanitize=${KTX_SANITIZE}>"
                         $<${not_of_tests}:-fno-sanitize-recover=all>
                         $<${not_of_tests}:-fno-omit-frame-pointer>)
  # The checks before every access through a pointer take g++ longer than all others together. The address
  # sanitizer finds what they find but alignment, which no x86 needs; fuzz, with clang, has them all.
  # g++ takes values for unset that its own checks hide (GCC bug 105562); the other presets have the warning.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(ktx_options INTERFACE $<${not_of_tests}:-Wno-maybe-uninitialized>
      $<${not_of_tests}:-fno-sanitize=null,alignment,object-size,pointer-overflow,vptr>)
  else()
    # clang 14 cannot put this check in front of a coroutine ("Cannot represent a difference across sections").
    target_compile_options(ktx_options INTERFACE $<${not_of_tests}:-fno-sanitize=function>)
  endif()
  target_link_options(ktx_options INTERFACE -fsanitize=${KTX_SANITIZE})
endif()
target_link_libraries(ktx_options INTERFACE Threads::Threads)
# The fastest linker that is installed.
include(CheckLinkerFlag)
foreach(linker mold lld)
  check_linker_flag(CXX -fuse-ld=${linker} KTX_HAS_${linker})
  if(KTX_HAS_${linker})
    target_link_options(ktx_options INTERFACE -fuse-ld=${linker})
    break()
  endif()
endforeach()

# ktx_quick(target): with KTX_QUICK (of tests alone with KTX_QUICK=tests) up to 16 files of a folder are compiled as
# one, so that the headers and templates which they have in common are read and made once. So names in unnamed
# namespaces are unique within a folder, but in tests: there each file's are put into a namespace of its own
# (join_tests.cmake). Files with definitions of their own are left out; so are kernels, whose files have flags of their
# own, and families, whose tables have the same names on purpose. bench/2026-11-check.md has what it saves.
# Not CMake's UNITY_BUILD, which names files by where the clone lies: ccache would find none in another.
function(ktx_quick target)
  get_target_property(is_test ${target} KTX_TEST)
  if(NOT KTX_QUICK OR target MATCHES "^ktx_(kernels|families)$" OR (KTX_QUICK STREQUAL "tests" AND NOT is_test))
    return()
  endif()
  # g++ warns of types in unnamed namespaces wherever the file is not the one that it was given, and with -O1 of
  # copies by std::vector that it has half understood, which -O2 does not: shown, and no errors.
  set(flow_warnings stringop-overflow array-bounds maybe-uninitialized)
  list(TRANSFORM flow_warnings PREPEND -Wno-error=)
  target_compile_options(${target} PRIVATE
    "$<$<AND:${host_language},$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage;${flow_warnings}>")
  get_target_property(sources ${target} SOURCES)
  set(groups)
  set(together)
  foreach(source ${sources})
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    if(definitions)
      list(APPEND together ${source})
      continue()
    endif()
    get_filename_component(source ${source} ABSOLUTE)
    file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${source})
    get_filename_component(folder ${path} DIRECTORY)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    math(EXPR files_${folder} "0${files_${folder}} + 1")
    math(EXPR part "(${files_${folder}} - 1) / 16")
    set(group ${folder}_${part})
    list(APPEND groups ${group})
    list(APPEND files_of_${group} ${path})
    string(APPEND includes_${group} "#include \"${path}\"\n")
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group ${groups})
    set(joined ${CMAKE_CURRENT_BINARY_DIR}/${group}.cc)
    if(is_test)
      get_source_file_property(taken ${joined} GENERATED)  # by other tests of this folder
      if(taken)
        string(REPLACE ".cc" ".${target}.cc" joined ${joined})
      endif()
      if(KTX_PLAIN_FROM AND NOT KTX_SANITIZE STREQUAL "thread")
        file(RELATIVE_PATH object ${CMAKE_CURRENT_BINARY_DIR} ${joined})
        file(RELATIVE_PATH folder ${CMAKE_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR})
        set(object ${KTX_PLAIN_FROM}/${folder}/CMakeFiles/${target}.dir/${object}.o)
        set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
        list(APPEND together ${object})
        continue()
      endif()
      list(APPEND together ${joined})
      list(TRANSFORM files_of_${group} PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
      set(script ${CMAKE_SOURCE_DIR}/cmake/join_tests.cmake)
      add_custom_command(OUTPUT ${joined} DEPENDS ${paths} ${script} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} VERBATIM
        COMMAND ${CMAKE_COMMAND} "-DFILES=${files_of_${group}}" -DOUT=${joined} -P ${script})
    else()
      list(APPEND together ${joined})
      file(CONFIGURE OUTPUT ${joined} CONTENT "${includes_${group}}" @ONLY)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${together}")
endfunction()

# Folders in which nothing is computed that a user waits for: -O1, which g++ has done in two thirds of the time.
set(KTX_CONTROL ops ir families input arch rules program plan passes server c_api)

# KTX_PLAIN_FROM=build-check: with KTX_SANITIZE the checks are in the folders that read what others wrote, and in
# those that execute it, and nowhere else; those of threads, where threads are. The rest is taken from that build, as it is;
# objects of tests, too, but for threads.
set(KTX_PLAIN_FROM "" CACHE PATH "a build folder with libraries that get no sanitizers, or empty")
set(KTX_SANITIZED support formats ops text input images vision rules plan program runtime server)
if(KTX_SANITIZE STREQUAL "thread")
  set(KTX_SANITIZED support plan runtime server)
elseif(KTX_FUZZ)
  list(APPEND KTX_SANITIZED arch)
endif()

# ktx_library(plan DEPS ops target LIBS PkgConfig::X): every .cc of this
# folder (and its sub-folders) as static library ktx_plan, but those that EXCLUDE, a
# regular expression, matches. Sources are globbed so that adding a file is adding a file.
function(ktx_library name)
  cmake_parse_arguments(ARG "" "EXCLUDE" "DEPS;LIBS" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND ktx_)
  if(KTX_PLAIN_FROM AND NOT name IN_LIST KTX_SANITIZED)
    file(RELATIVE_PATH folder ${CMAKE_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR})
    add_library(ktx_${name} STATIC IMPORTED GLOBAL)
    set_target_properties(ktx_${name} PROPERTIES
      IMPORTED_LOCATION ${KTX_PLAIN_FROM}/${folder}/libktx_${name}.a)
    target_link_libraries(ktx_${name} INTERFACE ktx_options ${ARG_DEPS} ${ARG_LIBS})
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cc)
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  if(NOT sources)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/empty.cc "")
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty.cc)
  endif()
  add_library(ktx_${name} STATIC ${sources})
  target_link_libraries(ktx_${name} PUBLIC ktx_options ${ARG_DEPS} ${ARG_LIBS})
  if(name IN_LIST KTX_CONTROL AND KTX_QUICK AND NOT KTX_QUICK STREQUAL "tests")
    target_compile_options(ktx_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  ktx_quick(ktx_${name})
endfunction()

# ktx_test(unit_plan SOURCES a_test.cc DEPS plan): one GoogleTest program, a test of CTest for each of its
# cases. With SHARDS 8 eight tests, of all cases in turn: for many cases that take less time than a start.
function(ktx_test name)
  cmake_parse_arguments(ARG "" "SHARDS" "SOURCES;DEPS;LIBS" ${ARGN})
  add_executable(test_${name} ${ARG_SOURCES} ${CMAKE_SOURCE_DIR}/tests/support/paths.cc)
  set_target_properties(test_${name} PROPERTIES KTX_TEST ON POSITION_INDEPENDENT_CODE ON)
  # For paths.cc alone: see paths.h.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/support/paths.cc PROPERTIES
    COMPILE_DEFINITIONS "KTX_SOURCE_DIR=\"${CMAKE_SOURCE_DIR}\";KTX_BINARY_DIR=\"${CMAKE_BINARY_DIR}\";KTX_SANITIZED=\"${KTX_SANITIZE}\"")
  list(TRANSFORM ARG_DEPS PREPEND ktx_)
  target_link_libraries(test_${name} PRIVATE ktx_options ${ARG_DEPS} ${ARG_LIBS}
                        GTest::gtest GTest::gmock GTest::gtest_main)
  ktx_quick(test_${name})
  if(NOT ARG_SHARDS)
    gtest_discover_tests(test_${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 900)
    return()
  endif()
  math(EXPR last "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last})
    add_test(NAME ${name}.${shard} COMMAND test_${name} --gtest_brief=1)
    set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT 900 ENVIRONMENT
                         "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()
