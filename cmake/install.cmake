# `cmake --install` and packages:
#
#   cmake --install build --prefix /opt/ktx
#   cd build && cpack -G DEB        ktx_VERSION_amd64.deb, depends on the libraries it was linked with
#   cd build && cpack -G TGZ        ktx-VERSION-Linux.tar.gz, to be unpacked anywhere
#
# bin/ktx-compile, bin/ktx-run, bin/ktx-pull (where libcurl is), include/ktx/ktx.h, lib/libktx.so, and under share/: profiles of
# machines (found from bin/ by ../share/ktx/targets), rule files, the schema of rules, examples,
# manual pages and completions. Those last are printed by the programs themselves.
# lib, not lib/x86_64-linux-gnu: the same tree everywhere.
set(CMAKE_INSTALL_LIBDIR lib CACHE STRING "where libraries go")
include(GNUInstallDirs)

set(about ${CMAKE_BINARY_DIR}/about)
file(MAKE_DIRECTORY ${about})
set(programs ktx-compile ktx-run)
if(TARGET ktx-pull)
  list(APPEND programs ktx-pull)
endif()
foreach(program ${programs})
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(KTX_STATIC)
    target_sources(${program} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/arc4random.cc)
  endif()
  set(outputs)
  foreach(shell bash zsh fish)
    add_custom_command(OUTPUT ${about}/${program}.${shell}
      COMMAND ${program} --completion ${shell} > ${about}/${program}.${shell}
      DEPENDS ${program} VERBATIM)
    list(APPEND outputs ${about}/${program}.${shell})
  endforeach()
  add_custom_command(OUTPUT ${about}/${program}.1
    COMMAND ${program} --man-page > ${about}/${program}.1
    DEPENDS ${program} VERBATIM)
  add_custom_target(about-${program} ALL DEPENDS ${outputs} ${about}/${program}.1)
  install(FILES ${about}/${program}.bash RENAME ${program}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${about}/${program}.zsh RENAME _${program}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${about}/${program}.fish
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  install(FILES ${about}/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endforeach()

if(TARGET ktx_mpi)  # found from bin/ by ../lib/ktx
  install(TARGETS ktx_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ktx)
endif()
if(KTX_STATIC AND KTX_LIBRARY)
  target_sources(ktx_shared PRIVATE ${CMAKE_SOURCE_DIR}/cmake/arc4random.cc)
endif()
if(KTX_LIBRARY)
  install(TARGETS ktx_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY include/ktx DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  # The prefix is found from where the file lies, so that a tree can be moved.
  file(CONFIGURE OUTPUT ${about}/ktx.pc @ONLY CONTENT "prefix=\${pcfiledir}/../..
Name: ktx
Description: runs plans of language models
Version: @PROJECT_VERSION@
Libs: -L\${pcfiledir}/.. -lktx
Cflags: -I\${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
")
  install(FILES ${about}/ktx.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

install(DIRECTORY targets rules DESTINATION ${CMAKE_INSTALL_DATADIR}/ktx)
install(FILES docs/rules.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/ktx)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs FILES_MATCHING PATTERN "*.md")
install(DIRECTORY docs/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)

set(CPACK_PACKAGE_NAME ktx)
set(CPACK_PACKAGE_VENDOR ktx)
set(CPACK_PACKAGE_CONTACT "the maintainers of ktx <ktx@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "compiler, packer and runtime for language models")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_STRIP_FILES ON)
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # dpkg-shlibdeps; the package dpkg-dev has it
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/cmake/cpack_options.cmake)
# Programs open ktx-mpi.so for plans over several hosts alone (shlibdeps); what that is linked with
# comes with mpirun.
if(TARGET ktx_mpi)
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ${KTX_MPI_PACKAGE})
endif()
include(CPack)
