# Debian packages, made by `make deb` (the preset `package`): carat, libcarat1 and libcarat-dev, with what Debian expects
# of a package besides the program. Included last, when every target is known.
if(NOT CARAT_PACKAGES)
  return()
endif()
include(GNUInstallDirs)
find_program(CARAT_GZIP gzip REQUIRED)
set(CARAT_MAINTAINER "carat contributors <maintainers@carat.example>" CACHE STRING "Maintainer named in the packages")

# A package with device code is newer than one without of the same version, so that one can replace the other.
set(DEB_REVISION 1)
if(CARAT_HAVE_CUDA)
  string(APPEND DEB_REVISION "+cuda${CUDAToolkit_VERSION_MAJOR}.${CUDAToolkit_VERSION_MINOR}")
endif()
set(DEB_VERSION "${PROJECT_VERSION}-${DEB_REVISION}")
# The date of the last commit: the same sources make the same changelog.
execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} log -1 --format=%aD OUTPUT_VARIABLE DEB_DATE
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT DEB_DATE)
  set(DEB_DATE "Thu, 01 Jan 2026 00:00:00 +0000")
endif()

set(debian ${CMAKE_SOURCE_DIR}/deploy/debian)
set(made ${CMAKE_CURRENT_BINARY_DIR}/packages)
file(MAKE_DIRECTORY ${made})
configure_file(${debian}/changelog.in ${made}/changelog @ONLY)

# carat_compressed(out in): a file as Debian's policy wants it, without time and name.
set(compressed "")
function(carat_compressed out in)
  add_custom_command(OUTPUT ${out} COMMAND ${CARAT_GZIP} -9nc ${in} > ${out} DEPENDS ${in} VERBATIM)
  set(compressed ${compressed} ${out} PARENT_SCOPE)
endfunction()
carat_compressed(${made}/changelog.Debian.gz ${made}/changelog)
carat_compressed(${made}/carat.1.gz ${CMAKE_BINARY_DIR}/src/cli/carat.1)
add_custom_target(carat_packages_files ALL DEPENDS ${compressed})
add_dependencies(carat_packages_files carat_manual)

foreach(entry program:carat library:libcarat1 development:libcarat-dev)
  string(REPLACE ":" ";" entry ${entry})
  list(GET entry 0 component)
  list(GET entry 1 package)
  install(FILES ${debian}/copyright ${made}/changelog.Debian.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
    COMPONENT ${component})
endforeach()
install(FILES ${made}/carat.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)

# One text for the unit and for its instances.
function(carat_unit name port ports)
  cmake_parse_arguments(arg "" "ON_ONE_GPU;OR_INSTANCE;AT;OF_GPU;INSTANCE_ENVIRONMENT;INSTANCE_FILE;FOLDER" "" ${ARGN})
  foreach(word ON_ONE_GPU OR_INSTANCE AT OF_GPU INSTANCE_ENVIRONMENT INSTANCE_FILE FOLDER)
    set(${word} "${arg_${word}}")
  endforeach()
  set(PORT ${port})
  set(PORTS ${ports})
  configure_file(${CMAKE_SOURCE_DIR}/deploy/systemd/carat.service.in ${made}/${name} @ONLY)
  install(FILES ${made}/${name} DESTINATION /lib/systemd/system COMPONENT program)
endfunction()
carat_unit(carat.service 8080 8080)
carat_unit(carat@.service 808%i 8080-8089 ON_ONE_GPU " on one of several GPUs: carat@0 to carat@9" OR_INSTANCE " and carat-N" AT "@N"
  OF_GPU " on GPU %i" INSTANCE_ENVIRONMENT " CUDA_VISIBLE_DEVICES=%i" INSTANCE_FILE "EnvironmentFile=-/etc/default/carat-%i
" FOLDER "-%i")
install(FILES ${CMAKE_SOURCE_DIR}/deploy/systemd/carat.default RENAME carat DESTINATION /etc/default COMPONENT program)
install(DIRECTORY DESTINATION /var/lib/carat/models COMPONENT program
  DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
install(FILES ${CMAKE_SOURCE_DIR}/examples/ask.c ${CMAKE_SOURCE_DIR}/examples/grammar.cc
  ${CMAKE_SOURCE_DIR}/examples/carat.py ${CMAKE_SOURCE_DIR}/examples/serve.mjs
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libcarat-dev/examples COMPONENT development)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME carat)
set(CPACK_PACKAGE_VENDOR "carat contributors")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/deb)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL program library development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
  WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # the first line of each description below is its summary
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${CARAT_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_RELEASE ${DEB_REVISION})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Programs that are linked with it need the version of the interface, not of the packaging, which CPack would write.
file(WRITE ${made}/shlibs "libcarat 1 libcarat1 (>= ${PROJECT_VERSION})\n")
file(WRITE ${made}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME carat)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA ${debian}/conffiles ${debian}/postinst ${debian}/prerm ${debian}/postrm)
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "inference of Gemma 4 models from GGUF files
carat answers questions in a terminal, serves the APIs of OpenAI, Anthropic and
Ollama, and inspects, measures and converts model files. A demo model of 15
million parameters is part of this package.

No service is enabled by it; /etc/default/carat has the options of one.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libcarat1)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS carat)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${made}/shlibs ${made}/triggers)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "inference of Gemma 4 models in other programs - shared library
libcarat loads a model, takes requests as JSON in the shape of OpenAI's API,
and hands out events as JSON, through a small C interface. The demo model,
which a program gets that names no other, is in the package carat.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libcarat-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libcarat1 (= ${DEB_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS carat)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "inference of Gemma 4 models in other programs - development files
The header of libcarat, what pkg-config and CMake need to find it, and examples
in C, C++, Python and JavaScript.")
if(CARAT_HAVE_CUDA)
  # The programs start without it, and say what is missing where there is a GPU.
  set(blas libcublas-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR})
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS ${blas})
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "carat, ${blas}")
endif()
include(CPack)
