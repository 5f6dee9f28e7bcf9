# SOURCE must not compile with WRONG defined, and the message must have REASON.
separate_arguments(ARGUMENTS)
execute_process(COMMAND ${COMPILER} ${ARGUMENTS} -std=c++20 -fsyntax-only -I${INCLUDE} -D${WRONG} ${SOURCE}
                RESULT_VARIABLE bad ERROR_VARIABLE errors)
if(bad EQUAL 0)
  message(FATAL_ERROR "the wrong use compiles")
endif()
if(NOT errors MATCHES "${REASON}")
  message(FATAL_ERROR "it fails for another reason than '${REASON}':\n${errors}")
endif()
