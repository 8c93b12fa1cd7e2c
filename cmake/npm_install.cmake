# cmake -D NPM=... -D FOLDER=... -P npm_install.cmake: installs exactly what package-lock.json says, once. A stamp in
# node_modules holds the hash of what was asked for, so later runs cost nothing.
set(request "")
foreach(name package.json package-lock.json .npmrc)
  file(SHA256 ${FOLDER}/${name} hash)
  string(APPEND request ${hash})
endforeach()
set(stamp ${FOLDER}/node_modules/.carat-installed)

# Several build folders share one source tree.
file(MAKE_DIRECTORY ${FOLDER}/node_modules)
file(LOCK ${FOLDER}/node_modules/.carat-lock TIMEOUT 600 RESULT_VARIABLE locked)
if(NOT locked EQUAL 0)
  message(FATAL_ERROR "cannot lock ${FOLDER}/node_modules: ${locked}")
endif()

set(installed "")
if(EXISTS ${stamp})
  file(READ ${stamp} installed)
endif()
if(installed STREQUAL request)
  message(STATUS "the packages are installed already")
  return()
endif()

# Not `npm ci`: it refuses a lock file without the packages of every foreign platform, and not every registry has them
# all. --no-save keeps the lock file as it is, and its hashes are checked just the same.
execute_process(COMMAND ${NPM} install --no-save WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "npm install failed in ${FOLDER} (${status}); is the npm registry reachable?")
endif()
file(WRITE ${stamp} ${request})
